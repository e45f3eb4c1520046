"""Where may a program save, so that no message is lost or doubled by a restart?"""
