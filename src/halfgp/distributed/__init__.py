"""Rows shared out over the processes of a torch.distributed group."""
