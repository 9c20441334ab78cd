r"""Export a model to CTranslate2, an engine for deployment.

    fairseq-docmt export-ctranslate2 --model checkpoint_best.pt --out model.ct2 --quantization int8
    fairseq-docmt translate --model model.ct2 talk.txt --out talk.de

The output folder has all that translation needs: parameters, vocabularies, tokenizer and BPE.  Only
models of fairseq's transformer architecture that were trained on windows or full documents can be
exported.  CTranslate2 does not have the parts that other models need.
"""

import argparse
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Dict

from fairseq.models import ARCH_MODEL_NAME_REGISTRY

from fairseq_docmt.checkpoint_file import read_checkpoint
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.symbols import BEGIN_OF_DOCUMENT, SENTENCE_SEPARATOR
from fairseq_docmt.text_form import FILE, TextForm, checksum, read_text_forms
from fairseq_docmt.translate.exported import INFO, PADDING, ExportedModel, ctranslate2

TASKS = ("sliding_window_translation", "full_document_translation")
#: file of the parameters
PARAMETERS = "model.bin"
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int16", "float16", "bfloat16", "float32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options of ``fairseq-docmt export-ctranslate2``."""
    parser.add_argument("--model", metavar="FILE", required=True, help="checkpoint")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="folder to write")
    parser.add_argument("--data", metavar="DIR", default="", help="default: training's")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="numbers of the parameters; default: as stored",
    )


def main(args: argparse.Namespace) -> None:
    """Export a checkpoint to a folder, which appears only when it is complete.

    Raises:
        UserError: the model cannot be exported, or the folder exists.
    """
    if os.path.exists(args.out):
        raise UserError(f"{args.out} is already there; remove it, or give another --out")
    file = read_checkpoint(args.model)
    _check(file)
    translator = DocumentTranslator.from_pretrained(args.model, args.data)
    task = translator.hub.task
    if task.tag_options is not None:
        raise UserError(f"{args.model} has language tags, which exported models do not support")
    data = (args.data or file.settings["task"]["data"]).split(os.pathsep)[0]
    forms = read_text_forms(data)
    info = ExportedModel(
        source_lang=task.cfg.source_lang,
        target_lang=task.cfg.target_lang,
        window_size=task.options.get("window_size"),
        next_sentences=task.options.get("next_sentences", 0),
        separator=SENTENCE_SEPARATOR,
        document_start=BEGIN_OF_DOCUMENT if task.options["mark_document_start"] else None,
        max_tokens=min(translator.hub.max_positions),
        max_document_tokens=task.options.get("max_document_tokens"),
        target_ratio=task.options.get("target_ratio", 1.0),
        has_text_form=bool(forms),
    )
    converter = _converter(file, translator.hub)
    partial = args.out.rstrip(os.sep) + ".partial"
    try:
        converter.convert(partial, quantization=args.quantization, force=True)
        _copy_text_form(data, forms, partial)
        _write_info(info, Path(partial))
        os.replace(partial, args.out)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(f"{args.out} cannot be written: {error.strerror or error}") from None
    if len(set(translator.hub.max_positions)) > 1:
        print(
            f"the exported model reads and writes up to {info.max_tokens} tokens, the fewer of "
            "--max-source-positions and --max-target-positions"
        )
    print(f"wrote {args.out}; give it to fairseq-docmt translate --model")


def _check(file) -> None:
    """Refuse a checkpoint whose architecture or task CTranslate2 does not support.

    Args:
        file: content of the checkpoint, from :func:`read_checkpoint`.

    Raises:
        UserError: the model is not supported; the message names the architecture or task.
    """
    if ARCH_MODEL_NAME_REGISTRY.get(file.arch) != "transformer":
        raise UserError(
            f"{file.path} has --arch {file.arch}; only fairseq's transformer can be exported"
        )
    model = file.settings["model"]
    refused = {name: model.get(name) for name in ("cross_self_attention", "no_cross_attention")}
    sizes = (None, model.get("decoder_embed_dim"))
    refused["decoder_output_dim"] = model.get("decoder_output_dim") not in sizes
    for name, given in refused.items():
        if given:
            raise UserError(
                f"{file.path} was trained with {flag(name)}, which CTranslate2 does not support"
            )
    if file.task not in TASKS or file.settings["task"].get("restart_positions"):
        raise UserError(
            f"{file.path} was trained with --task {file.task}; only models of "
            f"{' and '.join(TASKS)} without --restart-positions can be exported"
        )


def _converter(file, hub):
    """Return a CTranslate2 converter for a model that is already loaded in fairseq.

    If CTranslate2 does not support an option of the model, the converter raises a UserError.

    Args:
        file: content of the checkpoint.
        hub: fairseq's hub interface with the model and its task.
    """
    engine = ctranslate2()
    from ctranslate2.converters import fairseq as of_fairseq

    class Converter(engine.converters.converter.Converter):
        def _load(self):
            model = hub.models[0].float()
            model.requires_grad_(False)
            try:
                spec = of_fairseq._get_model_spec(argparse.Namespace(**file.settings["model"]))
                of_fairseq.set_transformer_encoder(spec.encoder, model.encoder)
                of_fairseq.set_transformer_decoder(spec.decoder, model.decoder)
                spec.register_source_vocabulary(_words(hub.task.source_dictionary))
                spec.register_target_vocabulary(_words(hub.task.target_dictionary))
                spec.validate()
            except (ValueError, AttributeError) as error:
                reasons = " ".join(str(error).split())
                raise UserError(f"{file.path} cannot be exported: {reasons}") from None
            spec.config.decoder_start_token = spec.config.eos_token
            spec.config.add_source_eos = True
            return spec

    return Converter()


def _words(dictionary) -> list:
    """Return the words of a dictionary, with ``<pad>`` renamed to CTranslate2's ``<blank>``."""
    return [PADDING if word == "<pad>" else word for word in dictionary.symbols]


def _write_info(info: ExportedModel, folder: Path) -> None:
    """Write the description of an exported model, with the checksums of its other files.

    The file of the parameters, which can be large, has none.
    """
    paths = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != PARAMETERS]
    sums = {path.relative_to(folder).as_posix(): checksum(path) for path in paths}
    described = {**asdict(info), "checksums": sums}
    (folder / INFO).write_text(json.dumps(described, indent=1), encoding="utf-8")


def _copy_text_form(data: str, forms: Dict[str, TextForm], folder: str) -> None:
    """Copy the files that describe how a corpus was preprocessed, for use in translation.

    These are ``text_form.json`` and the truecasing and subword models.  If the corpus has no such
    description, nothing is copied.

    Args:
        data: folder of the binarised corpus.
        forms: form of the text of each language; none if the corpus has no description.
        folder: folder to copy to.
    """
    if not forms:
        return
    shutil.copy(os.path.join(data, FILE), folder)
    for form in forms.values():
        for path in (form.truecaser, form.bpe_codes, form.sentencepiece):
            if path:
                target = os.path.join(folder, os.path.relpath(path, data))
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(path, target)
