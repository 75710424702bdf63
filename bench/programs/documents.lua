-- Builds, copies, prints and parses nested tables, as a program that handles documents does: many
-- small tables and strings of mixed sizes, most of them short-lived, some long-lived.
-- Usage: lua documents.lua ROUNDS

local rounds = tonumber(arg[1])

-- A generator in this script, so that every version of Lua does the same work.
local state = 42
local function random(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % n + 1
end

local words = {}
for i = 1, 500 do
  local letters = {}
  for j = 1, 2 + random(10) do letters[j] = string.char(96 + random(26)) end
  words[i] = table.concat(letters)
end

local function text(length)
  local chosen = {}
  for i = 1, length do chosen[i] = words[random(#words)] end
  return table.concat(chosen, " ")
end

local function document(depth)
  local node = { title = text(3), body = text(random(30)), tags = {}, children = {} }
  for i = 1, random(6) do node.tags[words[random(#words)]] = i end
  if depth > 0 then
    for i = 1, 1 + random(4) do node.children[i] = document(depth - 1) end
  end
  return node
end

local function write(value, out)
  if type(value) == "string" then
    out[#out + 1] = string.format("%q", value)
  elseif type(value) == "number" then
    out[#out + 1] = tostring(value)
  else
    local keys = {}
    for key in pairs(value) do keys[#keys + 1] = key end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    out[#out + 1] = "{"
    for _, key in ipairs(keys) do
      out[#out + 1] = type(key) == "number" and "[" .. key .. "]=" or "[" .. string.format("%q", key) .. "]="
      write(value[key], out)
      out[#out + 1] = ","
    end
    out[#out + 1] = "}"
  end
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local other = {}
  for key, inner in pairs(value) do other[key] = copy(inner) end
  return other
end

local kept, sum, nodes = {}, 0, 0
local function count(node)
  nodes = nodes + 1
  sum = (sum * 31 + #node.body + #node.title) % 1000000007
  for _, child in ipairs(node.children) do count(child) end
end

for round = 1, rounds do
  local original = document(4)
  local out = {}
  write(copy(original), out)
  local again = assert(load("return " .. table.concat(out)))()
  count(again)
  -- A window of documents stays alive; a random one is replaced.
  kept[#kept < 24 and #kept + 1 or random(24)] = again
  local upper = again.body:gsub("%a+", function(word) return word:upper() .. round % 7 end)
  sum = (sum + #upper) % 1000000007
end

print("nodes", nodes, "sum", sum, "kept", #kept)
