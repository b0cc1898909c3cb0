/* peer_plasma.cc: Plasma by the C++ client of pyarrow's wheel. ADDRESS is the path of the store's socket. */
#include "peer.h"

#include <plasma/client.h>

#include <cstring>
#include <string>
#include <vector>

/* Bytes of an object and of a call that go within one message. More is faster by Create and Seal, as was measured. */
static const size_t small = 65536, small_call = 131072;

const bool peer_puts_many = true;
static plasma::PlasmaClient client;
static std::vector<plasma::ObjectBuffer> shown;

static void must(const arrow::Status &s, const char *what)
{
    if (!s.ok())
        work_fail("plasma: %s: %s", what, s.ToString().c_str());
}

static plasma::ObjectID id_of(const struct item &item)
{
    return plasma::ObjectID::from_binary(std::string(item.key, PEER_KEY));
}

void peer_open(const char *address)
{
    must(client.Connect(address, ""), "connect");
}

const char *peer_client(void)
{
    return "C++, pyarrow's";
}

static void put_one(const struct item &item)
{
    std::shared_ptr<arrow::Buffer> buffer;
    plasma::ObjectID id = id_of(item);

    must(client.Create(id, (int64_t)item.size, nullptr, 0, &buffer), "create");
    std::memcpy(buffer->mutable_data(), item.data, item.size);
    must(client.Seal(id), "seal");
    must(client.Release(id), "release");
}

static void put_small(struct item *items, unsigned n)
{
    std::vector<plasma::ObjectID> ids;
    std::vector<std::string> data, metadata(n);

    for (unsigned i = 0; i < n; i++) {
        ids.push_back(id_of(items[i]));
        data.emplace_back((const char *)items[i].data, items[i].size);
    }
    if (n == 1)
        must(client.CreateAndSeal(ids[0], data[0], metadata[0]), "create and seal");
    else
        must(client.CreateAndSealBatch(ids, data, metadata), "create and seal batch");
}

void peer_put(struct item *items, unsigned n)
{
    if (items[0].size <= small && n * items[0].size <= small_call)
        put_small(items, n);
    else
        for (unsigned i = 0; i < n; i++)
            if (items[i].size <= small)
                put_small(&items[i], 1);
            else
                put_one(items[i]);
}

void peer_get(struct item *items, unsigned n)
{
    std::vector<plasma::ObjectID> ids;

    for (unsigned i = 0; i < n; i++)
        ids.push_back(id_of(items[i]));
    must(client.Get(ids, -1, &shown), "get");
    for (unsigned i = 0; i < n; i++) {
        if (!shown[i].data || (size_t)shown[i].data->size() != items[i].size)
            work_fail("plasma: %s is not there", items[i].key);
        items[i].data = shown[i].data->data();
    }
}

void peer_release(struct item *, unsigned)
{
    shown.clear();
}

void peer_remove(struct item *items, unsigned n)
{
    std::vector<plasma::ObjectID> ids;

    for (unsigned i = 0; i < n; i++)
        ids.push_back(id_of(items[i]));
    must(client.Delete(ids), "delete");
}
