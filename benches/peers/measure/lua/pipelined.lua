-- Several requests in one write: as many as the argument after `--` says.
local batch

function init(args)
  local requests = {}
  for index = 1, tonumber(args[1]) do
    requests[index] = wrk.format()
  end
  batch = table.concat(requests)
end

function request()
  return batch
end
