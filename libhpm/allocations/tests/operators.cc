// Allocates by C++'s operators, one of which throws.
#include <cstdio>
#include <new>
#include <vector>

struct node { long key; node *next; };

__attribute__((noinline)) node *make_node() { return new node{1, nullptr}; }

int main()
{
	node *first = make_node();
	try {
		volatile std::size_t huge = static_cast<std::size_t>(-1) / 4;
		char *never = new char[huge];
		std::printf("%p\n", static_cast<void *>(never));
	} catch (const std::bad_alloc &) {
	}
	node *second = make_node();
	auto *aligned = new (std::align_val_t(64)) char[300];
	auto *quiet = new (std::nothrow) char[41];
	std::printf("new %p 16\nnew %p 16\naligned %p 300\nquiet %p 41\n", static_cast<void *>(first),
		    static_cast<void *>(second), static_cast<void *>(aligned), static_cast<void *>(quiet));
	delete first;
	return 0;
}
