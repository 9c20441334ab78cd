"""Translation from files to files: formats, sentence splitting, progress and resumption."""
