# SPDX-License-Identifier: Apache-2.0
"""A DCGAN: two networks, two optimizers, losses read back at every step."""
import torch
from torch import nn
from torch.utils.data import DataLoader

from synthetic import Images

NOISE, WIDTH, SIZE, BATCH, STEPS = 128, 96, 64, 128, 120


def up(inputs, outputs):
    return nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True))


def down(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True))


generator = nn.Sequential(
    nn.ConvTranspose2d(NOISE, 8 * WIDTH, 4, bias=False), nn.BatchNorm2d(8 * WIDTH), nn.ReLU(True),
    up(8 * WIDTH, 4 * WIDTH), up(4 * WIDTH, 2 * WIDTH), up(2 * WIDTH, WIDTH),
    nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1), nn.Tanh()).cuda()
critic = nn.Sequential(
    nn.Conv2d(3, WIDTH, 4, 2, 1), nn.LeakyReLU(0.2, True),
    down(WIDTH, 2 * WIDTH), down(2 * WIDTH, 4 * WIDTH), down(4 * WIDTH, 8 * WIDTH),
    nn.Conv2d(8 * WIDTH, 1, 4), nn.Flatten(0)).cuda()
optimize_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimize_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(BATCH, device="cuda"), torch.zeros(BATCH, device="cuda")
loader = DataLoader(Images(STEPS * BATCH, SIZE, 1, 0.0008), batch_size=BATCH, shuffle=True, drop_last=True)
for step, (real, _) in enumerate(loader):
    fake = generator(torch.randn(BATCH, NOISE, 1, 1, device="cuda"))
    critic.zero_grad()
    loss_critic = criterion(critic(real.cuda()), ones) + criterion(critic(fake.detach()), zeros)
    loss_critic.backward()
    optimize_critic.step()
    generator.zero_grad()
    loss_generator = criterion(critic(fake), ones)
    loss_generator.backward()
    optimize_generator.step()
    critic_value, generator_value = loss_critic.item(), loss_generator.item()
    if step % 20 == 0:
        print(f"step {step} critic {critic_value:.3f} generator {generator_value:.3f}", flush=True)
