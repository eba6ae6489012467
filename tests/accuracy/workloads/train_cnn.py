#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An image-classification training script, as in xMem's evaluation: torchvision model, CIFAR-10 resized to 86x86, fp32.

    train_cnn.py MODEL OPTIMIZER BATCH ZERO_GRAD_POS

ZERO_GRAD_POS: 0 at the start of an iteration, 1 just before backward, 2 after step. Four iterations are trained.
An ordinary program: it knows nothing of gpumem. The images are random, as their values do not matter here.
"""
import argparse

import torch
from torchvision import models
from torchvision.models.mnasnet import MNASNet

# As in the evaluation: ImageNet heads (1000 classes) except for the three that it builds by hand with 10.
MODELS = {
    "VGG11": models.vgg11,
    "VGG16": models.vgg16,
    "VGG19": models.vgg19,
    "ResNet50": models.resnet50,
    "ResNet101": models.resnet101,
    "ResNet152": models.resnet152,
    "MobileNetV2": models.mobilenet_v2,
    "MobileNetV3Small": lambda: models.mobilenet_v3_small(num_classes=10),
    "MobileNetV3Large": lambda: models.mobilenet_v3_large(num_classes=10),
    "MnasNet": lambda: MNASNet(alpha=1.0, num_classes=10),
    "ConvNeXtTiny": models.convnext_tiny,
    "ConvNeXtBase": models.convnext_base,
    "RegNetX400MF": models.regnet_x_400mf,
    "RegNetX32GF": models.regnet_x_32gf,
    "RegNetY400MF": models.regnet_y_400mf,
    "RegNetY32GF": models.regnet_y_32gf,
}
MODELS["MobeNetV3Small"] = MODELS["MobileNetV3Small"]  # the evaluation's own spelling
MODELS["MobeNetV3Large"] = MODELS["MobileNetV3Large"]


class Images(torch.utils.data.Dataset):
    """CIFAR-10's training set by shape: 50,000 images, ten classes."""

    def __len__(self):
        return 50000

    def __getitem__(self, index):
        return torch.full((3, 86, 86), index / 50000), index % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("optimizer")
    parser.add_argument("batch", type=int)
    parser.add_argument("zero_grad_pos", type=int, choices=(0, 1, 2))
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--device", default="cuda:0")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device(arguments.device)
    loader = torch.utils.data.DataLoader(Images(), batch_size=arguments.batch, shuffle=True)
    model = MODELS[arguments.model]()
    model.to(device)
    model.train()
    optimizer = getattr(torch.optim, arguments.optimizer)(params=model.parameters(), lr=0.001)
    criterion = torch.nn.CrossEntropyLoss()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    for index, (inputs, labels) in enumerate(loader):
        if arguments.zero_grad_pos == 0:
            optimizer.zero_grad()
        inputs, labels = inputs.to(device), labels.to(device)
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        if arguments.zero_grad_pos == 1:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _, predictions = torch.max(outputs, 1)
        if arguments.zero_grad_pos == 2:
            optimizer.zero_grad()
        scheduler.step()
        print(f"iteration {index}: learning rate {scheduler.get_last_lr()}")
        if index + 1 >= arguments.iterations:
            break


if __name__ == "__main__":
    main()
