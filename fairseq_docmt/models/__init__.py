"""Architectures of the suite, one file each; the stock ones serve all tasks as they are."""
