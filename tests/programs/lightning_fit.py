# SPDX-License-Identifier: Apache-2.0
# What: Lightning's Trainer: automatic mixed precision, validation, a checkpoint; then rank 0 of 4 by Slurm's variables under DDP.
# needs: lightning
# expect: note "rank 0 of 4 ran without the others"
import os
import tempfile

import lightning as L
import torch


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("accuracy", (self.layers(x).argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def loader():
    data = torch.utils.data.TensorDataset(torch.randn(256, 1, 28, 28), torch.randint(0, 10, (256,)))
    return torch.utils.data.DataLoader(data, batch_size=32)


with tempfile.TemporaryDirectory() as directory:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": directory, "accelerator": "gpu"}
    for precision in ("32-true", "16-mixed", "bf16-mixed"):
        trainer = L.Trainer(max_epochs=2, devices=1, precision=precision, gradient_clip_val=1.0, accumulate_grad_batches=2, **quiet)
        model = Classifier()
        trainer.fit(model, loader(), loader())
        assert trainer.global_step == 8, trainer.global_step
        loss = trainer.callback_metrics["loss"].item()
        assert loss == loss and loss != 0
    os.environ.update(SLURM_JOB_ID="1", SLURM_NTASKS="4", SLURM_NTASKS_PER_NODE="1", SLURM_PROCID="0", SLURM_LOCALID="0", SLURM_NODEID="0",
                      SLURM_NNODES="4", SLURM_JOB_NODELIST="node[1-4]", SLURM_NODELIST="node[1-4]", SLURM_JOB_NAME="train", SLURM_JOB_NUM_NODES="4")
    trainer = L.Trainer(max_epochs=1, devices=1, num_nodes=4, strategy="ddp", **quiet)
    assert trainer.world_size == 4
    trainer.fit(Classifier(), loader(), loader())
    assert trainer.global_step == 2, trainer.global_step  # a fourth of the batches
print("ok")
