"""``python -m fairseq_docmt.scoring COMMAND``: one command for each module that offers one."""

import argparse

from fairseq_docmt.errors import show_user_errors_plainly
from fairseq_docmt.scoring import contrastive

COMMANDS = {"contrastive": contrastive}


def main() -> None:
    show_user_errors_plainly()
    parser = argparse.ArgumentParser(prog="python -m fairseq_docmt.scoring")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.__doc__.splitlines()[0],
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(main=module.main)
    args = parser.parse_args()
    args.main(args)


if __name__ == "__main__":
    main()
