# SPDX-License-Identifier: Apache-2.0
# What: Lightning starts a second rank by itself, for the second GPU; both train under DDP, and under FSDP.
# needs: lightning
# gpus: 2
# expect: no-note "without the others|in vain"
# expect: that sorted(p["rank"] for p in e["processes"] if p["devices"]) == [0, 1]
import tempfile

import lightning as L
import torch


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))

    def training_step(self, batch, _):
        loss = self.layers(batch[0]).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.trainer.model.parameters())


with tempfile.TemporaryDirectory() as directory:
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(256, 64)), batch_size=16)
    for strategy in ("ddp", "fsdp"):
        trainer = L.Trainer(max_epochs=1, devices=2, accelerator="gpu", strategy=strategy, logger=False, enable_progress_bar=False,
                            enable_model_summary=False, enable_checkpointing=False, default_root_dir=directory)
        assert trainer.world_size == 2
        trainer.fit(Regression(), data)
        assert trainer.global_step == 8, trainer.global_step
print("ok")
