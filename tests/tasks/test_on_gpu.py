"""Tasks use the device of the model in training, validation and decoding."""

import argparse

import pytest
import tiny
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from long_tests import long_but_for
from pretended_gpu import PretendedGPU, put, put_module

import fairseq_docmt  # noqa: F401  registers the tasks

WINDOW = ["--task", "sliding_window_translation", "--window-size", "3"]
DOCUMENT = ["--task", "full_document_translation"]
STREAM = ["--task", "sentence_stream_translation"]
TAGS = ["--tag-languages", "src,tgt", "--mark-document-start"]
CASES = {
    "window": [*WINDOW, "--decoding", "window", *tiny.MODEL],
    "sequential": [*WINDOW, "--decoding", "sequential", *tiny.MODEL],
    "segment": [*DOCUMENT, "--decoding", "segment", *tiny.rfa("--sentence-gate", "decay")],
    "document": [*DOCUMENT, "--decoding", "sequential", *tiny.window()],
    "memory": [*STREAM, *tiny.memory()],
    "cache": [*STREAM, *tiny.cache()],
    "tags": [*WINDOW, "--decoding", "window", "--language-tags", "m2m", *TAGS, *tiny.MODEL],
    "tags in a stream": [*STREAM, "--language-tags", "mbart25", *TAGS, *tiny.memory()],
    "iterative": ["--task", "document_rows_translation", "--gold-drafts", *tiny.memnet()],
}
FAST = ["sequential", "cache", "iterative"]


class Optimizer:
    """The part of fairseq's class that a task reads and calls."""

    param_groups = ()

    def backward(self, loss):
        loss.backward()


@pytest.mark.parametrize("case", long_but_for(FAST, CASES))
def test_devices_are_not_mixed(binarised, case):
    arguments = [str(binarised), "-s", "src", "-t", "tgt", *CASES[case], *tiny.TRAINING]
    parsed = options.parse_args_and_arch(options.get_training_parser(), arguments)
    cfg = convert_namespace_to_omegaconf(parsed)
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    criterion = task.build_criterion(cfg.criterion)
    # As from a checkpoint, where language models need not be given.
    model = put_module(task.build_model(cfg.model, from_checkpoint=True))
    batches = task.get_batch_iterator(task.dataset("train"), max_tokens=400, max_sentences=4)
    sentences = [torch.tensor(x + [task.src_dict.eos()]) for x in ([5, 6, 7], [8], [], [9, 6])]
    typed = task.build_dataset_for_inference(sentences, [len(x) for x in sentences])
    search = argparse.Namespace(beam=3, max_len_a=1, max_len_b=5, min_len=1)
    with PretendedGPU():
        for number, sample in enumerate(batches.next_epoch_itr(shuffle=False)):
            task.train_step(put(sample), model, criterion, Optimizer(), number)
        model.eval()
        task.valid_step(put(sample), model, criterion)
        generator = task.build_generator([model], search)
        lines = task.get_batch_iterator(typed, max_sentences=2, disable_iterator_cache=True)
        for sample in lines.next_epoch_itr(shuffle=False):
            sample = {name: put(sample[name]) for name in ("id", "net_input")}
            for hypotheses in task.inference_step(generator, [model], sample):
                if len(hypotheses[0]["tokens"]) > 1:
                    assert hypotheses[0]["tokens"].device.type == "cuda"
        task.cfg.checkpoint_to_decode = "the model"  # as in fairseq-generate
        task.load_dataset("test")
        scorer = task.build_generator([model], argparse.Namespace(score_reference=True))
        references = task.get_batch_iterator(task.dataset("test"), max_sentences=2)
        for sample in references.next_epoch_itr(shuffle=False):
            for (scored,) in task.inference_step(scorer, [model], put(sample)):
                assert scored["positional_scores"].device.type == "cuda"
