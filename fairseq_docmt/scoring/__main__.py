"""Command line of the evaluation: ``python -m fairseq_docmt.scoring COMMAND --help``."""

import argparse
import importlib

from fairseq_docmt._quiet import quietly

#: Command -> module of this package.  A module has ``add_arguments(parser)``, ``main(args)`` and a
#: docstring, whose first line is shown in the list of commands.
COMMANDS = {
    "metrics": "metrics",
    "convert": "convert",
    "pronouns": "pronouns",
    "tagged-words": "tagged_words",
    "dropped-pronouns": "dropped_pronouns",
    "contrastive": "contrastive",
    "targeted": "targeted",
    "context-usage": "context_usage",
    "mbr": "mbr",
    "rerank": "rerank",
    "report": "report",
}


def main() -> None:
    """Run the command named on the command line."""
    with quietly():
        modules = {
            name: importlib.import_module(f"fairseq_docmt.scoring.{module}")
            for name, module in COMMANDS.items()
        }
        args = _parser(modules).parse_args()
        modules[args.command].main(args)


def _parser(modules: dict) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_docmt.scoring", description="Evaluate translated documents."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in modules.items():
        command = commands.add_parser(
            name,
            help=module.__doc__.splitlines()[0],
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
    return parser


if __name__ == "__main__":
    main()
