"""A training loop of PyTorch: killed anywhere, it ends with the weights of an undisturbed run, to the last bit.

`python torch_loop.py [EPOCHS]`, with torch and numpy. Start it again after any kill.
"""

import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import safepoint

EPOCHS, PER_EPOCH, BATCH, EVERY = int(sys.argv[1]) if len(sys.argv) > 1 else 20, 40, 16, 8
data = TensorDataset(x := torch.linspace(-3, 3, PER_EPOCH * BATCH).reshape(-1, 1), torch.sin(x))
if not Path(".safepoint").exists():
    Path(".safepoint").write_text("train.pt\n")
safepoint.init()
saved = safepoint.restore()
if saved and saved.finished:
    raise SystemExit
random.seed(1), np.random.seed(1), torch.manual_seed(1)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * PER_EPOCH)
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def write() -> None:
    name, key, *rest = np.random.get_state()
    state = {name: part.state_dict() for name, part in parts.items()}
    state |= {"numpy": (name, key.tolist(), *rest), "python": random.getstate()}
    state |= {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
    torch.save(state, "train.pt")


if saved:  # only now: what was made above took random numbers
    state = torch.load("train.pt")
    for name, part in parts.items():
        part.load_state_dict(state[name])
    np.random.set_state(state["numpy"]), random.setstate(state["python"]), torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state_all(state["cuda"])
print(f"begin at step {(step := saved.step if saved else 0)}", flush=True)
for epoch in range(step // PER_EPOCH, EPOCHS):
    order = np.random.default_rng(epoch).permutation(len(data))[step % PER_EPOCH * BATCH :].tolist()
    # Of its own generator a loader takes a number whenever it begins; else that would be the global one.
    for a, b in DataLoader(data, BATCH, sampler=order, generator=torch.Generator()):
        noisy = a * random.uniform(0.9, 1.1) + torch.from_numpy(np.random.normal(0, 0.1, a.shape)).float()
        loss = nn.functional.mse_loss(model(noisy), b)
        optimizer.zero_grad(), loss.backward(), optimizer.step(), scheduler.step()
        step += 1
        if step % EVERY == 0:
            write()
            safepoint.hide(step=step)
            print(f"step {step}", flush=True)
write()
safepoint.finish(step=step)
