-- Rounds of different work: a table is filled and sorted, strings are joined, and patterns are looked for in them.
local state = 1
local function random(limit)
  state = (state * 1103515245 + 12345) % 2147483648
  return state % limit
end
local sum = 0
for round = 1, 3 do
  local numbers = {}
  for i = 1, 3000 do numbers[i] = random(100000) end
  table.sort(numbers)
  sum = sum + numbers[1500]
  local words = {}
  for i = 1, 1500 do words[i] = string.format("%x%s", numbers[i], i % 7 == 0 and "needle" or "hay") end
  local text = table.concat(words, " ")
  for word in text:gmatch("%x+needle") do sum = sum + #word end
  local replaced, times = text:gsub("hay", "straw")
  sum = sum + #replaced + times
  local compiled = load("local s = 0; for i = 1, 1500000 do s = s + i % 7 end; return s")
  sum = sum + compiled()
end
print(sum)
