"""Tools of servers (Model Context Protocol): who is configured, what is known of them, and talking to them.

A server is *configured* (`configuration`), *known* once its list of tools was read (`known` keeps it for later starts),
*started* when it is first needed (`connection`), and in use. The SDK is imported then, and not before.
"""
