"""The fault bench for Sentinel and Cluster: a whole site, fastq and Go asynq on it, and faults of nodes and network."""
