# A server of static files, compressed ones and listings, and its only client.
here=$PWD
mkdir -p site/small logs
cp words site/words.txt; cp program.c site/program.txt
for i in 1 2 3 4 5 6 7 8 9; do head -c $((i * 700)) words > site/small/$i.txt; done
cat > nginx.conf <<CONF
daemon off; master_process off; pid $here/nginx.pid; error_log $here/logs/error;
events { worker_connections 16; }
http {
  access_log $here/logs/access;
  client_body_temp_path $here/logs; proxy_temp_path $here/logs; fastcgi_temp_path $here/logs; uwsgi_temp_path $here/logs; scgi_temp_path $here/logs;
  types { text/plain txt; }
  gzip on; gzip_types text/plain; gzip_comp_level 6;
  server { listen unix:$here/socket; root $here/site; autoindex on; }
}
CONF
nginx -p "$here" -c "$here/nginx.conf" &
server=$!
perl client.pl "$here/socket"
kill $server
wait $server
exit 0
