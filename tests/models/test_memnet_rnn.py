"""Dependencies between the sentences of a document in memnet_rnn."""

import pytest
import tiny
import torch
from fairseq.data.data_utils import collate_tokens

import fairseq_docmt  # noqa: F401

DICTIONARY = tiny.dictionary()
PAD, EOS = DICTIONARY.pad(), DICTIONARY.eos()
VARIANTS = {
    f"{memory}, {place}": tiny.memnet("--memory", memory, "--memory-to", place)
    for memory in ("source", "target", "both")
    for place in ("context", "output")
}


@pytest.fixture(params=VARIANTS)
def model(request):
    return tiny.model(*VARIANTS[request.param])


def document(sentences, seed):
    """Triples (source, target, draft), each ending in ``</s>``."""
    generator = torch.Generator().manual_seed(seed)

    def sentence():
        length = int(torch.randint(1, 6, (), generator=generator))
        words = torch.randint(4, 16, (length,), generator=generator)
        return torch.cat([words, torch.tensor([EOS])])

    return [(sentence(), sentence(), sentence()) for _ in range(sentences)]


def run(model, documents, gold=False):
    """Log probabilities of the target tokens of each sentence."""
    rows = [triple for sentences in documents for triple in sentences]
    source = collate_tokens([s for s, _, _ in rows], PAD, left_pad=True)
    targets = [t for _, t, _ in rows]
    previous = collate_tokens(targets, PAD, EOS, move_eos_to_beginning=True)
    drafts = collate_tokens([d for _, _, d in rows], PAD, EOS, move_eos_to_beginning=True)
    numbers = torch.arange(len(documents)).repeat_interleave(
        torch.tensor([len(d) for d in documents])
    )
    with torch.no_grad():
        output = model(
            source,
            source.ne(PAD).sum(1),
            previous,
            documents=numbers,
            drafts=None if gold else drafts,
        )
        scores = output[0].log_softmax(dim=-1)
    return [s[: len(t)].gather(1, t.unsqueeze(1)).squeeze(1) for s, t in zip(scores, targets)]


def check(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b)


def differ(found, wanted):
    return [not torch.allclose(a, b, atol=1e-9, rtol=0) for a, b in zip(found, wanted)]


def test_documents_do_not_know_of_each_other(model):
    first, second, third = document(5, 1), document(1, 2), document(3, 3)
    together = run(model, [first, second, third])
    check(together, [s for d in (first, second, third) for s in run(model, [d])])


def test_every_other_sentence_is_read(model):
    sentences = document(4, 1)
    before = run(model, [sentences])
    for changed in range(4):
        source, target, draft = document(1, 9)[0]
        kept = sentences[changed]
        with_source = (source, kept[1], kept[2])
        with_draft = (kept[0], kept[1], draft)
        other = [with_source if i == changed else s for i, s in enumerate(sentences)]
        assert all(differ(run(model, [other]), before))
        other = [with_draft if i == changed else s for i, s in enumerate(sentences)]
        remembers = model.remembers_translations
        assert differ(run(model, [other]), before) == [remembers] * 4
        # The target is predicted, not read.
        other = [(s[0], target, s[2]) if i == changed else s for i, s in enumerate(sentences)]
        after = run(model, [other])
        for number in set(range(4)) - {changed}:
            check([after[number]], [before[number]])


def test_only_the_source_memory_knows_the_order_of_sentences(model):
    """Shuffling the document has no effect on a target memory, whose cells have no positions."""
    sentences, order = document(5, 1), [3, 0, 4, 1, 2]
    before = run(model, [sentences])
    after = run(model, [[sentences[number] for number in order]])
    knows_order = model.encoder.source_memory is not None
    assert differ(after, [before[number] for number in order]) == [knows_order] * 5


def test_a_sentence_does_not_see_its_own_reference(model):
    """With references in the memory, no information about the own reference leaks."""
    sentences = document(3, 1)
    source, target, draft = sentences[1]
    longer = torch.cat([target[:-1], torch.tensor([5, 6, 7, EOS])])
    before = run(model, [sentences], gold=True)
    sentences[1] = (source, longer, draft)
    after = run(model, [sentences], gold=True)
    check([after[1][: len(target) - 1]], [before[1][:-1]])
    assert (
        differ([after[0], after[2]], [before[0], before[2]]) == [model.remembers_translations] * 2
    )


def test_a_lone_sentence_is_that_of_rnnsearch(model):
    base = tiny.model(*tiny.rnnsearch("--decoder-layers", "2"))
    model.load_state_dict(base.state_dict(), strict=True)
    sentences = document(1, 1)
    source = collate_tokens([s for s, _, _ in sentences], PAD, left_pad=True)
    target = sentences[0][1]
    previous = target.roll(1)[None]
    with torch.no_grad():
        output = base(source, source.ne(PAD).sum(1), previous)
        scores = output[0][0].log_softmax(dim=-1)
    check(run(model, [sentences]), [scores.gather(1, target.unsqueeze(1)).squeeze(1)])


def new_parameters(*options):
    """Millions of parameters beyond those of rnnsearch, of the size of the paper."""
    from fairseq import options as host
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    task = TranslationTask(TranslationConfig(), DICTIONARY, DICTIONARY)
    parser = host.get_training_parser()
    args = host.parse_args_and_arch(parser, ["data", "--arch", "memnet_rnn", *options])
    model = task.build_model(args)
    return sum(
        p.numel() for p in model.parameters() if hasattr(p, "param_group") and p.requires_grad
    )


def test_numbers_of_parameters_are_those_of_the_paper():
    """Table 3, whose figures are rounded to 0.1 million; here without the biases of the GRU."""
    biases = 2 * 2 * 3 * 512
    assert new_parameters("--memory", "source") - biases == pytest.approx(6.29e6, abs=5e3)
    assert new_parameters("--memory", "target") == pytest.approx(1.31e6, abs=5e3)
    assert new_parameters("--memory", "both") - biases == pytest.approx(7.6e6, abs=1e4)
    words = len(DICTIONARY)
    output = new_parameters("--memory", "both", "--memory-to", "output") - biases
    assert output == 4718592 + 524288 + words * 1536
