"""Images and labels for a training run: made up on the device, made up in loaders, from folders, through Ray Data.

Whatever the kind, the global batch of a step is a pure function of (seed, step), and every rank takes its rows of it:
a run goes on at any step, on any number of workers, over the same images in the same order.
"""

from workloads.train.data.source import DataConfig, Kind, Source, source

__all__ = ["DataConfig", "Kind", "Source", "source"]
