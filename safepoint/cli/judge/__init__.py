"""Commands that judge a run: was it worth it, is it right, and is a resumed one the same?"""
