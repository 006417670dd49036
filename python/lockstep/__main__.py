"""The command `lockstep`: replaces this process by the program."""
import os
import sys

from ._program import program


def main() -> None:
    path = str(program())
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
