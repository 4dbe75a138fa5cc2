"""Tools of MCP servers (Model Context Protocol): their configuration, what is known about them, and talking to them.

A server is *configured* (`configuration`), *known* once its list of tools has been read (`known` stores it for later
starts), and *started* when it is first needed (`connection`). Only then is the SDK imported.
"""
