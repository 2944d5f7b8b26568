"""The site of `serve`: what `explain` and `image` say and make, in a browser and by HTTP.

    app ──▶ pages, api ──▶ site ──▶ answers              `explain`'s verdict, here
                             ├────▶ images               what is there to be downloaded
                             └────▶ work ──▶ queue ──▶ build.py     jobs: child processes in folders
                                    states, reading                 what is said of them, and what they read
                                    steps                           what an error has its reader ask

`guard` stands before all: names of hosts, sizes, times, who asks, and from where. `graphcrate.remote.questions` reads
what was asked, strictly. There is no other planner or builder here; a result's text is what the command line prints.
"""
