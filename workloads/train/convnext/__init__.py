"""ConvNeXt (Liu et al. 2022, arXiv 2201.03545) as the trainer's larger model: the network, its settings, its speed."""
