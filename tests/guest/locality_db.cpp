// db's chain (locality.c) as C++ has it: an index of entries, each with a vector of strings.
//
//     locality_db db OBJECTS STEPS LOG
//
// LOG gets a line for each object: its kind, address and size.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

struct entry {
	long key;
	std::unique_ptr<std::vector<std::string>> items;
};

static std::uint64_t state = 88172645463325252u;

// xorshift64 (Marsaglia, Journal of Statistical Software 8, 2003).
static inline std::uint64_t random_number()
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

// The loads that miss: entry, vector, its elements, characters.
extern "C" __attribute__((noipa)) long visit(const std::vector<std::unique_ptr<entry>> *index, long number)
{
	return (*(*index)[number]->items)[0][0];
}

static void log(FILE *file, const char *kind, const void *object, std::size_t bytes)
{
	std::fprintf(file, "%s %p %zu\n", kind, object, bytes);
}

int main(int, char **arguments)
{
	const long objects = std::atol(arguments[2]), steps = std::atol(arguments[3]);
	FILE *file = std::fopen(arguments[4], "w");
	if (!file)
		return 1;
	std::vector<std::unique_ptr<entry>> index;
	// What lies between objects keeps two of them off one line.
	std::vector<std::unique_ptr<char[]>> gaps;
	auto gap = [&gaps] { gaps.push_back(std::make_unique<char[]>(100)); };
	for (long number = 0; number < objects; number++) {
		index.push_back(std::make_unique<entry>());
		auto &one = *index.back();
		gap();
		one.key = number;
		one.items = std::make_unique<std::vector<std::string>>();
		gap();
		one.items->reserve(2);
		gap();
		for (int letter = 0; letter < 2; letter++) {
			one.items->emplace_back(30, 'a' + letter);
			gap();
		}
		log(file, "entry", &one, sizeof one);
		log(file, "vector", one.items.get(), sizeof *one.items);
		log(file, "elements", one.items->data(), 2 * sizeof(std::string));
		for (const auto &text : *one.items)
			log(file, "characters", text.data(), 30);
	}
	log(file, "index", index.data(), objects * sizeof index[0]);
	std::fclose(file);
	long sum = 0;
	for (long step = 0; step < steps; step++)
		sum += visit(&index, random_number() % objects);
	std::printf("%ld\n", sum);
	return 0;
}
