# SPDX-License-Identifier: Apache-2.0
# What: diffusers' U-Net with accelerate in fp16, gradient accumulation, an average of the weights, and pictures drawn from it.
# needs: diffusers accelerate
# expect: that e["steps"] == 4
import torch
from accelerate import Accelerator
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel

accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
model = UNet2DModel(sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64),
                    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
noising = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
pictures = torch.utils.data.DataLoader(torch.rand(64, 3, 32, 32), batch_size=8, shuffle=True)
model, optimizer, pictures = accelerator.prepare(model, optimizer, pictures)
average = EMAModel(model.parameters(), decay=0.999)
average.to(accelerator.device)
for clean in pictures:
    with accelerator.accumulate(model):
        noise = torch.randn_like(clean)
        times = torch.randint(0, 1000, (len(clean),), device=clean.device)
        loss = torch.nn.functional.mse_loss(model(noising.add_noise(clean, noise, times), times, return_dict=False)[0], noise)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        average.step(model.parameters())
assert accelerator.scaler.get_scale() == 65536.0 and loss.isfinite(), (accelerator.scaler.get_scale(), loss)
pipeline = DDPMPipeline(unet=accelerator.unwrap_model(model), scheduler=noising)
pipeline.set_progress_bar_config(disable=True)
assert len(pipeline(batch_size=4, num_inference_steps=5).images) == 4
print("ok")
