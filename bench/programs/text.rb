# Text is split, counted, sorted, joined and matched. Ruby's own heap holds the objects; their
# strings, arrays and tables come from malloc.
#
# Usage: ruby text.rb ROUNDS

# A generator in this script, so that every version of Ruby does the same work.
class Generator
  def initialize
    @state = 42
  end

  def below(n)
    @state = (@state * 1103515245 + 12345) & 0x7fffffff
    (@state >> 16) % n
  end
end

Entry = Struct.new(:name, :lines, :index)

random = Generator.new
words = Array.new(700) { Array.new(2 + random.below(11)) { (97 + random.below(26)).chr }.join }
kept = []
sum = 0

ARGV.fetch(0).to_i.times do |round|
  lines = Array.new(400) do
    Array.new(3 + random.below(20)) { words[random.below(words.size)] }.join(" ")
  end
  index = Hash.new { |hash, key| hash[key] = [] }
  lines.each_with_index { |line, at| line.split.each { |word| index[word] << at } }
  longest = index.sort_by { |word, places| [-places.size, word] }.first(80)
  report = longest.map { |word, places| format("%-14s %s", word, places.join(",")) }.join("\n")
  shouted = lines.map { |line| line.gsub(/\b[aeiou]\w+/) { |word| word.capitalize + round.to_s } }
  buffer = +""
  shouted.each { |line| buffer << line << "\n" }
  sum = (sum * 31 + report.bytesize + buffer.bytesize + buffer.scan(/[A-Z]/).size) % 1_000_000_007
  # A window of entries stays alive; a random one is replaced.
  entry = Entry.new(report, shouted, index)
  kept.size < 8 ? kept << entry : kept[random.below(8)] = entry
end

puts "sum #{sum} kept #{kept.size} words #{kept.sum { |entry| entry.index.size }}"
