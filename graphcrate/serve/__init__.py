"""The site of `serve`: what `explain` and `image` say and make, in a browser and by HTTP.

    app ──▶ pages, api ──▶ site ──▶ questions, answers   what was asked, read strictly; `explain`'s verdict, here
                             ├────▶ images               what is there to be downloaded
                             └────▶ work ──▶ queue ──▶ build.py     jobs: child processes in folders
                                    states, reading                 what is said of them, and what they read
                                    steps                           what an error has its reader ask

`guard` stands before all: names of hosts, sizes, times, who asks, and from where. There is no other planner or builder
here, and a result's text is what the command line prints.
"""
