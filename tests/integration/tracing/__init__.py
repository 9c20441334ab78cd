"""``--user-dir`` with a task that logs every loss and can kill its process.

Environment: TRACE, file to write to, completed by the number of the process; KILL_AT, number of the
update in which the process kills itself.
"""

import os
import signal

from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import register_task

from fairseq_docmt.tasks.sentence_stream_translation import (
    SentenceStreamTranslationConfig,
    SentenceStreamTranslationTask,
)


@register_task("traced_stream", dataclass=SentenceStreamTranslationConfig)
class TracedStream(SentenceStreamTranslationTask):
    """Stream translation whose losses can be compared bit by bit."""

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        if str(update_num) == os.environ.get("KILL_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
        result = super().train_step(
            sample, model, criterion, optimizer, update_num, ignore_grad=ignore_grad
        )
        rank = distributed_utils.get_global_rank()
        with open(f"{os.environ['TRACE']}.{rank}", "a") as trace:
            places = sample["id"].tolist(), sample["net_input"]["starts"].tolist()
            print(update_num, ignore_grad, result[0].item(), *places, file=trace)
        return result
