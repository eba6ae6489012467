# SPDX-License-Identifier: Apache-2.0
# What: Fourier transforms of all kinds, their plan cache and work areas, gradients through them, complex numbers.
# expect: note "FFT"
import torch

device = "cuda"
x = torch.ones(16, 64, 256, device=device, requires_grad=True)
spectrum = torch.fft.rfft(x)
assert spectrum.dtype == torch.complex64 and spectrum.shape == (16, 64, 129)
back = torch.fft.irfft(spectrum, n=256)
assert back.shape == x.shape
back.square().mean().backward()
assert x.grad.shape == x.shape
for function in (torch.fft.fft, torch.fft.ifft, torch.fft.fft2, torch.fft.ifft2, torch.fft.fftn, torch.fft.ifftn):
    assert function(x.detach()).shape == x.shape
assert torch.fft.rfft2(x.detach()).shape == (16, 64, 129)
assert torch.fft.irfft2(torch.fft.rfft2(x.detach())).shape == x.shape
assert torch.fft.rfftn(x.detach().double()).dtype == torch.complex128
assert torch.fft.hfft(spectrum.detach()).shape == (16, 64, 256)
assert torch.fft.fft(torch.ones(7, 1021, device=device)).shape == (7, 1021)  # a large prime
assert torch.fft.fft(torch.ones(4, 256, device=device, dtype=torch.float16)).dtype == torch.complex32
assert torch.fft.fftshift(torch.arange(4.0, device=device)).tolist() == [2.0, 3.0, 0.0, 1.0]

# A small transform has its values.
small = torch.fft.fft(torch.tensor([1.0, 2.0, 3.0, 4.0], device=device))
assert [complex(z) for z in small.cpu()] == [10 + 0j, -2 + 2j, -2 + 0j, -2 - 2j], small

cache = torch.backends.cuda.cufft_plan_cache
assert cache.size > 0 and cache.max_size > 0
cache.max_size = 8
for n in range(64, 96):
    torch.fft.fft(torch.ones(2, n, device=device))
assert cache.size == 8
cache.clear()
assert cache.size == 0

# Sound
signal = torch.ones(4, 16000, device=device)
window = torch.hann_window(400, device=device)
frames = torch.stft(signal, 400, 160, window=window, return_complex=True)
assert frames.shape == (4, 201, 101)
assert torch.istft(frames, 400, 160, window=window, length=16000).shape == signal.shape

# A Fourier layer learns complex weights.
weight = torch.nn.Parameter(torch.ones(64, 64, 16, dtype=torch.cfloat, device=device))
optimizer = torch.optim.Adam([weight])
for _ in range(3):
    optimizer.zero_grad()
    modes = torch.einsum("bix,iox->box", torch.fft.rfft(torch.ones(8, 64, 128, device=device))[:, :, :16], weight)
    loss = torch.fft.irfft(modes, n=128).square().mean()
    loss.backward()
    optimizer.step()
assert weight.grad.dtype == torch.complex64 and loss.item() > 0
z = torch.tensor([3 + 4j], device=device)
assert z.abs().item() == 5 and torch.view_as_real(z).tolist() == [[3.0, 4.0]]
assert z.conj().imag.item() == -4 and z.conj().tolist() == [3 - 4j] and (z.conj() * 2).tolist() == [6 - 8j]
z.conj().imag.mul_(2)
assert z.tolist() == [3 + 8j]
assert (torch.ones(8, 8, dtype=torch.cfloat, device=device) @ torch.ones(8, 8, dtype=torch.cfloat, device=device))[0, 0].item() == 8
print("ok")
