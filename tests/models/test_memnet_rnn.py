"""memnet_rnn: which memories depend on the order of sentences."""

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


def run(model, documents):
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
            drafts=drafts,
        )
        scores = output[0].log_softmax(dim=-1)
    return [s[: len(t)].gather(1, t.unsqueeze(1)).squeeze(1) for s, t in zip(scores, targets)]


def differ(found, wanted):
    return [not torch.allclose(a, b, atol=1e-9, rtol=0) for a, b in zip(found, wanted)]


def test_only_the_source_memory_knows_the_order_of_sentences(model):
    """Shuffling the document has no effect on a target memory, whose cells have no positions."""
    sentences, order = document(5, 1), [3, 0, 4, 1, 2]
    before = run(model, [sentences])
    after = run(model, [[sentences[number] for number in order]])
    knows_order = model.encoder.source_memory is not None
    assert differ(after, [before[number] for number in order]) == [knows_order] * 5
