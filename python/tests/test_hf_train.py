"""Training with plsh attention: checkpointing, LoRA, Trainer, two processes."""

import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import plsh.hf  # noqa: E402
from alibi_models import FAMILIES, ids, padded, tiny, with_plsh  # noqa: E402

plsh.hf.register()


def gradients(model, tokens):
    model.train().zero_grad()
    model(tokens, labels=tokens).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing(family, reentrant):
    model, tokens = with_plsh(tiny(family)), ids(2, 30)
    wanted = gradients(model, tokens)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    for x, y in zip(gradients(model, tokens), wanted):
        assert torch.equal(x, y)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_follows_the_model_itself(family):
    own = tiny(family).train()
    losses = []
    for model in (own, with_plsh(own)):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        found = []
        for step in range(4):
            tokens = ids(2, 40, seed=step)
            loss = model(tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_lora(family, tmp_path):
    peft = pytest.importorskip("peft")
    own, tokens = tiny(family), ids(1, 30)
    found = []
    for model in (own, with_plsh(own)):
        torch.manual_seed(1)
        names = ["Wqkv"] if family == "mpt" else ["query_key_value"]
        lora = peft.get_peft_model(model, peft.LoraConfig(
            r=2, target_modules=names, init_lora_weights=False, task_type="CAUSAL_LM"))
        found.append(gradients(lora, tokens))
    for x, y in zip(*found):
        torch.testing.assert_close(x, y, rtol=0, atol=2e-5 * float(y.abs().max()))
    lora.eval().save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(with_plsh(tiny(family)), tmp_path).eval()
    assert torch.equal(again(tokens).logits, lora(tokens).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_trainer(family, tmp_path):
    pytest.importorskip("accelerate")
    model = with_plsh(tiny(family))
    data = [{"input_ids": x, "labels": x} for x in ids(8, 24)]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=3, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        save_steps=3, disable_tqdm=True, dataloader_pin_memory=False)
    result = transformers.Trainer(model, arguments, train_dataset=data).train()
    assert result.global_step == 3 and result.training_loss > 0
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-3").eval()
    assert loaded.config._attn_implementation == "plsh_exact"
    assert torch.equal(loaded(ids(1, 20)).logits, model.eval()(ids(1, 20)).logits)


# The processes end without the destructors of torch, of which one may find a thread of gloo that still runs,
# and abort ("terminate called without an active exception").
PROCESS = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from alibi_models import ids, tiny, with_plsh
dist.init_process_group("gloo")
model = with_plsh(tiny("bloom"))
both = ids(2, 24)
whole = model(both, labels=both).loss
whole.backward()
wanted = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
mine = both[dist.get_rank():dist.get_rank() + 1]
parallel = DistributedDataParallel(model)
parallel(mine, labels=mine).loss.backward()
for p, y in zip(model.parameters(), wanted):
    assert (p.grad - y).abs().max() <= 1e-5 * y.abs().max() + 1e-8
dist.destroy_process_group()
print("equal", flush=True)
os._exit(0)
"""


def test_two_processes():
    """The mean over the processes' gradients is the gradient of the batch."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(
        [str(pathlib.Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])}
    with subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
             "--no-python", sys.executable, "-c", PROCESS], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        out, _ = run.communicate(timeout=300)
    assert run.returncode == 0 and out.count("equal") == 2, out


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_on_the_left(family):
    """Loss and gradients are the model's own where no label is predicted from a row of padding."""
    lengths = (24, 10, 17)
    tokens, mask = padded("left", lengths)
    labels = tokens.masked_fill(mask == 0, -100)
    for b, length in enumerate(lengths):
        labels[b, 24 - length] = -100  # the first token, which the row before it would predict
    own = tiny(family)
    found = []
    for model in (own, with_plsh(own)):
        loss = model(tokens, attention_mask=mask, labels=labels, use_cache=False).loss
        model.zero_grad()
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters())])
    for x, y in zip(*found):
        torch.testing.assert_close(y, x, rtol=0, atol=2e-5 * float(x.abs().max()))
