"""Score segments with COMET, in a separate process: ``python comet_worker.py INPUT OUTPUT``.

The package unbabel-comet and fairseq need different versions of other packages, so this file may
run in another environment and imports nothing from this project.  INPUT and OUTPUT are JSON.
"""

import json
import os
import sys

#: Number of positions to keep free for the special symbols around a text.
SPECIAL = 4


def main(source: str, target: str) -> None:
    """Read samples from a JSON file, and write their COMET scores or an error to another.

    Args:
        source: file to read, with the arguments of :func:`score` as a dictionary.
        target: file to write.  It gets the dictionary that :func:`score` returns or, if scoring
            fails, a dictionary with an ``error`` message.
    """
    with open(source, encoding="utf-8") as stream:
        wanted = json.load(stream)
    try:
        found = score(**wanted)
    except ImportError as error:
        found = {
            "error": f"unbabel-comet cannot be imported by {sys.executable} ({error}); install it "
            "there, or give --comet-python the Python of an environment that has it"
        }
    except Exception as error:  # the package may raise any exception
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, KeyError) and error.args == ("ref",):
            message = "it needs references; use one without, e.g. Unbabel/wmt22-cometkiwi-da"
        found = {"error": f"--comet-model {wanted['model']} cannot be used: {message[:300]}"}
    with open(target, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


def score(model: str, samples: list, context: bool, batch_size: int) -> dict:
    """Score samples with a COMET model.

    Args:
        model: name or checkpoint of the model.
        samples: dictionaries with ``src``, ``mt`` and, if the model needs it, ``ref``.  Each value
            is a sentence or, if ``context`` is True, a list of sentences.
        context: if True, the last sentence of each list is scored, and the sentences before it are
            its context.
        batch_size: number of samples in a batch.

    Returns:
        Dictionary with ``scores`` and the ``version`` of unbabel-comet.  If ``context`` is True and
        the model cannot use context, the dictionary has only an ``error`` message.
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
    """Join the sentences of each text of a sample, without the first ones if a text is too long.

    While a joined text is too long for the model, the first sentence of each text is dropped,
    because COMET would otherwise truncate the end of the text, which is the sentence to score.  The
    last sentence is always kept.

    Args:
        sample: ``src``, ``mt`` and perhaps ``ref``, each a list of sentences.
        encoder: encoder of the COMET model.

    Returns:
        The sample with each text as one string.  Sentences are separated by the separator symbol of
        the model's tokenizer.
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
