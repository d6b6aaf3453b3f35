"""Runs a command with stdout and stderr on a terminal and prints what arrived there, every control
character but the newline as its escape. Usage: on_terminal.py COMMAND .."""
import os
import pty
import sys

process, terminal = pty.fork()
if process == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
seen = b""
while True:
    try:
        some = os.read(terminal, 65536)
    except OSError:  # the command has ended
        break
    if not some:
        break
    seen += some
os.waitpid(process, 0)
for line in seen.decode(errors="backslashreplace").replace("\r\n", "\n").splitlines():
    print(line.encode("unicode_escape").decode())
