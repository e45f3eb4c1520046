"""A fit of Lightning: killed anywhere, it ends with the weights of an undisturbed run, to the last bit.

`python lightning_fit.py [EPOCHS]`, with torch and lightning. Start it again after any kill.
"""

import random
import sys
from pathlib import Path

import lightning
import torch

import safepoint

X = torch.linspace(-3, 3, 256).reshape(-1, 1)


class Batches:
    """A loader that knows where it is. Lightning keeps its state; the order of an epoch depends on its number alone."""

    done = 0  # batches, of all epochs

    def __len__(self):
        return 16

    def __iter__(self):
        epoch, begun = divmod(self.done, 16)
        for indexes in torch.randperm(256, generator=torch.Generator().manual_seed(epoch)).split(16)[begun:]:
            self.done += 1
            yield X[indexes]

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))

    def training_step(self, x, _):
        return torch.nn.functional.mse_loss(self.layers(x * random.uniform(0.9, 1.1)), torch.sin(x))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 5)]


class SavePoints(lightning.Callback):
    """Every few steps a checkpoint of Lightning, with the random states in it, becomes a set."""

    def state_dict(self):
        return {"python": random.getstate(), "torch": torch.get_rng_state()}

    def load_state_dict(self, state):
        random.setstate(state["python"]), torch.set_rng_state(state["torch"])

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step % 4 == 0:
            trainer.save_checkpoint("last.ckpt", weights_only=False)
            safepoint.hide(step=trainer.global_step)
            print(f"step {trainer.global_step}", flush=True)


if not Path(".safepoint").exists():
    Path(".safepoint").write_text("last.ckpt\n")
safepoint.init()
saved = safepoint.restore()
if saved and saved.finished:
    raise SystemExit
print(f"begin at step {saved.step if saved else 0}", flush=True)
lightning.seed_everything(1)
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
silent = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=SavePoints(), **silent)
trainer.fit(Net(), Batches(), ckpt_path="last.ckpt" if saved else None)
trainer.save_checkpoint("last.ckpt", weights_only=False)
safepoint.finish(step=trainer.global_step)
