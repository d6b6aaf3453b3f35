"""A time series with irregular times: attention that decays with the time between two observations."""

import torch

import plsh.torch

made = torch.Generator().manual_seed(0)
times = torch.rand(300, generator=made).mul(100).sort().values  # hours; some close, some far apart
signal = (times / 6).sin()
noisy = signal + 0.5 * torch.randn(300, generator=made)

# A smoother: scores 0, weights exp(-|t_i - t_j| / sigma), and sigma is learned.
log_sigma = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.Adam([log_sigma], lr=0.2)
nothing = torch.zeros(1, 300, 1)
for step in range(30):
    smooth = plsh.torch.attention(nothing, nothing, noisy.view(1, 300, 1), sigma=log_sigma.exp(),
                                  positions=times, causal=False)
    loss = (smooth.view(-1) - signal).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

weights = (-(times[:, None] - times).abs() / log_sigma.exp().detach()).softmax(-1)
again = plsh.torch.attention(nothing, nothing, noisy.view(1, 300, 1), sigma=log_sigma.exp().detach(),
                             positions=times, causal=False)
assert torch.allclose(again.view(-1), weights @ noisy, atol=1e-5)
before = float((noisy - signal).square().mean())
print(f"sigma {log_sigma.exp().item():.2f} hours: squared error {before:.3f} before, {loss.item():.3f} after")
