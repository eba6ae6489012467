# SPDX-License-Identifier: Apache-2.0
# What: torchvision's detection: boxes, nms, roi_align and pooling, training steps of Faster R-CNN, Mask R-CNN and RetinaNet.
# needs: torchvision
# quick
import torch
import torchvision
from torchvision import ops

device = "cuda"
boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [50, 50, 60, 60]], device=device)
scores = torch.tensor([0.9, 0.8, 0.7], device=device)
assert ops.box_iou(boxes, boxes).shape == (3, 3)
assert ops.box_area(boxes).tolist() == [100.0, 100.0, 100.0]
assert ops.nms(boxes, scores, 0.5).tolist() == [0, 2]
assert ops.batched_nms(boxes, scores, torch.tensor([0, 1, 0], device=device), 0.5).tolist() == [0, 1, 2]
features = torch.ones(1, 8, 32, 32, device=device, requires_grad=True)
rois = torch.tensor([[0.0, 0, 0, 16, 16], [0.0, 4, 4, 20, 20]], device=device)
for function in (ops.roi_align, ops.roi_pool):
    function(features, rois, output_size=7).sum().backward()
assert features.grad.shape == features.shape
ops.ps_roi_align(torch.ones(1, 4 * 9, 32, 32, device=device), rois, output_size=3)
offset = torch.zeros(1, 18, 30, 30, device=device)
assert ops.deform_conv2d(features, offset, torch.ones(4, 8, 3, 3, device=device)).shape == (1, 4, 30, 30)


def targets(count, masks=False):
    made = []
    for i in range(2):
        target = {"boxes": torch.tensor([[10.0 + i, 10, 60, 60], [30, 20, 90, 80]][:count]), "labels": torch.ones(count, dtype=torch.int64)}
        if masks:
            target["masks"] = torch.ones(count, 128, 128, dtype=torch.uint8)
        made.append({k: v.to(device) for k, v in target.items()})
    return made


def train(model, **options):
    model = model.to(device)
    rows = []
    if hasattr(model, "roi_heads"):
        model.roi_heads.box_head.register_forward_pre_hook(lambda module, arguments: rows.append(arguments[0].shape[0]))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    for step in range(2):
        losses = model([torch.zeros(3, 128, 128, device=device) for _ in range(2)], targets(1 + step, **options))
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert all(value.item() == value.item() for value in losses.values())
    # As many boxes are sampled as were asked for (64 of each image), whatever their labels.
    assert all(64 < n <= 128 for n in rows), rows
    model.eval()
    with torch.no_grad():
        found = model([torch.zeros(3, 128, 128, device=device)])
    assert set(found[0]) >= {"boxes", "labels", "scores"} and found[0]["boxes"].shape[1] == 4


detection = torchvision.models.detection
sizes = {"weights": None, "weights_backbone": None, "num_classes": 5, "min_size": 128, "max_size": 160}
# Which of the sampled boxes are positive is not known, so all of them get a mask.
sampled = {"rpn_post_nms_top_n_train": 200, "rpn_post_nms_top_n_test": 200, "box_batch_size_per_image": 64}
train(detection.fasterrcnn_mobilenet_v3_large_fpn(**sizes, **sampled))
train(detection.maskrcnn_resnet50_fpn(**sizes, **sampled), masks=True)
train(detection.retinanet_resnet50_fpn(**sizes))
print("ok")
