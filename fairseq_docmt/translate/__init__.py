"""Command ``translate``: file formats, sentence splitting, progress and resumption."""
