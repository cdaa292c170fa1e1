-- A body of 64 KiB.
wrk.method = "POST"
wrk.body = string.rep("x", 64 * 1024)
wrk.headers["Content-Type"] = "application/octet-stream"
