"""Score segments with COMET, in a process of its own: ``python comet_worker.py INPUT OUTPUT``.

The package unbabel-comet needs other versions of packages than fairseq, so this file may run in
another environment and imports nothing from this project.  INPUT and OUTPUT are JSON.
"""

import json
import os
import sys

#: Positions of symbols at both ends of a text.
SPECIAL = 4


def main(source: str, target: str) -> None:
    """Read model and samples from one file, and write scores or an error to the other."""
    with open(source, encoding="utf-8") as stream:
        wanted = json.load(stream)
    try:
        found = score(**wanted)
    except ImportError as error:
        found = {
            "error": f"unbabel-comet cannot be imported by {sys.executable} ({error}); install it "
            "there, or give --comet-python the Python of an environment that has it"
        }
    except Exception as error:  # all that the package raises
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, KeyError) and error.args == ("ref",):
            message = "it needs references; use one without, e.g. Unbabel/wmt22-cometkiwi-da"
        found = {"error": f"--comet-model {wanted['model']} cannot be used: {message[:300]}"}
    with open(target, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


def score(model: str, samples: list, context: bool, batch_size: int) -> dict:
    """Return the score of each sample, a dictionary with ``src``, ``mt`` and, if needed, ``ref``.

    With ``context``, texts are lists of sentences; COMET sees all and scores the last.
    """
    import comet
    import torch

    path = model if os.path.isfile(model) else comet.download_model(model)
    loaded = comet.load_from_checkpoint(path)
    if context:
        loaded.enable_context()
        if not loaded.use_context:
            return {"error": f"--comet-model {model} cannot use context; use comet, not comet-doc"}
        samples = [with_context(sample, loaded.encoder) for sample in samples]
    gpus = min(torch.cuda.device_count(), 1)
    options = {"num_workers": 0, "progress_bar": False, "gpus": gpus, "batch_size": batch_size}
    scores = [float(x) for x in loaded.predict(samples, **options).scores]
    return {"scores": scores, "version": comet.__version__}


def with_context(sample: dict, encoder) -> dict:
    """Join the sentences of each side, without the first ones if a side is too long.

    COMET cuts the end of a text, which would be the scored sentence.
    """
    tokenizer = encoder.tokenizer
    separator = f" {tokenizer.sep_token} "
    most = getattr(encoder, "max_positions", 512) - SPECIAL
    while True:
        joined = {side: separator.join(texts) for side, texts in sample.items()}
        longest = max(len(tokenizer.tokenize(text)) for text in joined.values())
        if longest <= most or all(len(texts) == 1 for texts in sample.values()):
            return joined
        sample = {side: texts[1:] or texts for side, texts in sample.items()}


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose modules are not meant to be imported
    main(*sys.argv[1:])
