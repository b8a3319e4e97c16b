"""``python -m fastq``: the command of the same name."""

from fastq.cli.main import main

if __name__ == "__main__":
    main()
