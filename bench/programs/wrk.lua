-- The requests that wrk sends, and the figures in the form that the suite parses.

wrk.headers["Accept-Encoding"] = "gzip"

local pages = { "/small.html", "/middle.html", "/large.html", "/parts.html" }
local next_page = 0

function request()
  next_page = next_page % #pages + 1
  return wrk.format("GET", pages[next_page])
end

function done(summary, latency)
  local errors = summary.errors
  io.write("requests ", summary.requests, "\n")
  io.write("microseconds ", summary.duration, "\n")
  io.write("bytes ", summary.bytes, "\n")
  io.write("errors ", errors.connect + errors.read + errors.write + errors.timeout + errors.status, "\n")
  for _, percentile in ipairs({ 50, 99, 99.9 }) do
    io.write("p", percentile, " ", latency:percentile(percentile), "\n")
  end
  io.write("max ", latency.max, "\n")
end
