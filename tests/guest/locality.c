/* Linked structures of known layout, walked at random, with a log of their own objects.
 *
 *     locality db|table|names|tree|sharing OBJECTS STEPS LOG
 *
 * db is the chain of SPECjvm98's db: an index of entries, each with a vector of strings that refer to their characters. Every
 * object is allocated at its own place, in random order, so that each reference leads to another line. LOG gets a line for each
 * object: its kind, address and size; and `thread N ADDRESS` for each thread's counter of `sharing`.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct string { long length; char *value; };
struct vector { long length; struct string **elements; };
struct entry { long key; struct vector *items; };
struct database { long count; struct entry **index; };

struct node { long key; struct node *next; long payload[6]; };
struct table { long buckets; struct node **heads; };

struct name { char *text; struct name *next; };

struct page { long count; long keys[7]; struct page *children[8]; };

static FILE *log_file;
static uint64_t state = 88172645463325252u;

/* xorshift64 (Marsaglia, Journal of Statistical Software 8, 2003). */
static inline uint64_t random_number(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void *object(const char *kind, size_t size)
{
	/* What lies between objects keeps two of them off one line. */
	char *memory = aligned_alloc(64, (size + 127) / 64 * 64);
	if (!memory)
		abort();
	memset(memory, 1, size);
	fprintf(log_file, "%s %p %zu\n", kind, (void *)memory, size);
	return memory;
}

/* The loads that miss: entry, vector, elements, string, characters. */
__attribute__((noipa)) static long visit(struct database *database, long number)
{
	struct vector *items = database->index[number]->items;
	struct string *string = items->elements[0];
	return string->value[0];
}

static long db(long objects, long steps)
{
	struct database *database = object("database", sizeof *database);
	long sum = 0;
	database->count = objects;
	database->index = object("index", objects * sizeof *database->index);
	for (long number = 0; number < objects; number++) {
		struct entry *entry = object("entry", sizeof *entry);
		struct vector *items = object("vector", sizeof *items);
		items->elements = object("elements", 2 * sizeof *items->elements);
		for (items->length = 0; items->length < 2; items->length++) {
			struct string *string = object("string", sizeof *string);
			string->length = 30;
			string->value = object("characters", 30);
			items->elements[items->length] = string;
		}
		entry->key = number;
		entry->items = items;
		database->index[number] = entry;
	}
	for (long step = 0; step < steps; step++)
		sum += visit(database, random_number() % objects);
	return sum;
}

/* The list's nodes miss: they are reached through the table's heads, and through the node before. */
__attribute__((noipa)) static long look_up(struct table *table, long key)
{
	struct node *node = table->heads[key % table->buckets];
	while (node && node->key != key)
		node = node->next;
	return node ? node->payload[0] : 0;
}

static long hash(long objects, long steps)
{
	struct table *table = object("table", sizeof *table);
	long sum = 0;
	table->buckets = objects / 4 + 1;
	table->heads = object("heads", table->buckets * sizeof *table->heads);
	memset(table->heads, 0, table->buckets * sizeof *table->heads);
	for (long key = 0; key < objects; key++) {
		struct node *node = object("node", sizeof *node);
		node->key = key;
		node->next = table->heads[key % table->buckets];
		table->heads[key % table->buckets] = node;
	}
	for (long step = 0; step < steps; step++)
		sum += look_up(table, random_number() % objects);
	return sum;
}

/* As strcmp, which is not the same in every library. */
__attribute__((noipa)) static int compare(const char *one, const char *other)
{
	while (*one && *one == *other)
		one++, other++;
	return *one - *other;
}

/* The names miss through the one before, their texts where they are compared. */
__attribute__((noipa)) static struct name *find(struct name *name, const char *text)
{
	while (name && compare(text, name->text))
		name = name->next;
	return name;
}

static long names(long objects, long steps)
{
	long buckets = objects / 4 + 1, sum = 0;
	struct name **heads = object("heads", buckets * sizeof *heads);
	char text[32];
	memset(heads, 0, buckets * sizeof *heads);
	for (long number = 0; number < objects; number++) {
		struct name *name = object("name", sizeof *name);
		name->text = object("text", sizeof text);
		snprintf(name->text, sizeof text, "%lx", number);
		name->next = heads[number % buckets];
		heads[number % buckets] = name;
	}
	for (long step = 0; step < steps; step++) {
		long number = random_number() % objects;
		snprintf(text, sizeof text, "%lx", number);
		sum += find(heads[number % buckets], text) != NULL;
	}
	return sum;
}

__attribute__((noipa)) static long search(struct page *page, long key)
{
	long place = 0;
	while (page) {
		for (place = 0; place < page->count && page->keys[place] < key; place++)
			;
		page = page->children[place];
	}
	return place;
}

static struct page *grow(long low, long high)
{
	struct page *page = object("page", sizeof *page);
	memset(page->children, 0, sizeof page->children);
	page->count = high - low < 8 ? high - low : 7;
	for (long place = 0; place < page->count; place++)
		page->keys[place] = low + (place + 1) * (high - low) / (page->count + 1);
	if (page->count == 7)
		for (long place = 0; place < 8; place++)
			page->children[place] = grow(low + place * (high - low) / 8, low + (place + 1) * (high - low) / 8);
	return page;
}

static long tree(long objects, long steps)
{
	struct page *root = grow(0, objects);
	long sum = 0;
	for (long step = 0; step < steps; step++)
		sum += search(root, random_number() % objects);
	return sum;
}

struct work { volatile long *counter; long steps; };

static void *count(void *of)
{
	struct work *work = of;
	for (long step = 0; step < work->steps; step++)
		*work->counter += 1;
	return NULL;
}

/* Two threads count in one line. */
static long sharing(long steps)
{
	long *line = object("line", 64);
	struct work work[2] = { { line, steps }, { line + 4, steps } };
	pthread_t threads[2];
	memset(line, 0, 64);
	for (int number = 0; number < 2; number++) {
		fprintf(log_file, "thread %d %p\n", number, (void *)work[number].counter);
		pthread_create(&threads[number], NULL, count, &work[number]);
	}
	for (int number = 0; number < 2; number++)
		pthread_join(threads[number], NULL);
	return line[0] + line[4];
}

int main(int argc, char **argv)
{
	long objects, steps, sum;
	if (argc != 5 || !(log_file = fopen(argv[4], "w"))) {
		fprintf(stderr, "usage: locality db|table|names|tree|sharing OBJECTS STEPS LOG\n");
		return 2;
	}
	objects = atol(argv[2]);
	steps = atol(argv[3]);
	if (!strcmp(argv[1], "db"))
		sum = db(objects, steps);
	else if (!strcmp(argv[1], "table"))
		sum = hash(objects, steps);
	else if (!strcmp(argv[1], "names"))
		sum = names(objects, steps);
	else if (!strcmp(argv[1], "tree"))
		sum = tree(objects, steps);
	else
		sum = sharing(steps);
	fclose(log_file);
	printf("%ld\n", sum);
	return 0;
}
