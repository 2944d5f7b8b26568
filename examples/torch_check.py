#!/usr/bin/env python3
"""Looks at PyTorch: versions, code for each GPU, a product on each against the CPU, a sum over all."""

import torch

print(
    f"torch {torch.__version__}, CUDA {torch.version.cuda}, built for {' '.join(torch.cuda.get_arch_list()) or 'CPUs'}"
)
gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
for device in gpus:
    print(f"{device}: {torch.cuda.get_device_name(device)}, sm_%d%d" % torch.cuda.get_device_capability(device))
left, right = torch.randn(512, 512), torch.randn(512, 512)
wanted = left.double() @ right.double()
for device in gpus or [torch.device("cpu")]:
    error = float(((left.to(device) @ right.to(device)).cpu().double() - wanted).abs().max())
    print(f"{device}: a product is off by {error:.1e}")
    if not error < 0.3:  # TF32 keeps 10 bits of each factor
        raise SystemExit(f"the product on {device} is wrong")
if len(gpus) > 1:
    parts = [torch.full((1024,), number + 1.0, device=device) for number, device in enumerate(gpus)]
    torch.cuda.nccl.all_reduce(parts)
    print(f"NCCL over {len(gpus)} GPUs: {[float(part[0]) for part in parts]}")
    if any(float(part[0]) != len(gpus) * (len(gpus) + 1) / 2 for part in parts):
        raise SystemExit("the sum over all GPUs is wrong")
print("PyTorch works" + ("" if gpus else ", on the CPU: no GPU is to be seen"))
