"""The site of `serve`: what `explain` and `image --plan` say, and images to download, in a browser.

    site ──▶ questions, answers      what was asked, read strictly; `explain`'s verdict, in this process
      │
      └────▶ queue ──▶ build.py      plans: child processes in folders, nothing of them in this process

`guard` stands before all: names of hosts, sizes, times, who asks, and from where. There is no other planner here, and
a result's text is what the command line prints.
"""
