-- Sixteen requests in one write.
local depth = 16

request = function()
  local requests = {}
  for index = 1, depth do
    requests[index] = wrk.format()
  end
  return table.concat(requests)
end
