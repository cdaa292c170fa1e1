// The Go peer: net/http on two threads. Nothing is marked: a goroutine that waits holds no thread.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"peers/common"
)

func text(w http.ResponseWriter, content string) {
	w.Header().Set("Content-Type", "text/plain")
	io.WriteString(w, content)
}

func length(r *http.Request) time.Duration {
	query := r.URL.Query()
	return common.Length(query.Get("us"), query.Get("ms"))
}

func main() {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /plaintext", func(w http.ResponseWriter, r *http.Request) {
		text(w, common.Hello)
	})
	routes.HandleFunc("GET /json", func(w http.ResponseWriter, r *http.Request) {
		content, err := json.Marshal(common.Message{Message: common.Hello})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(content)
	})
	routes.HandleFunc("GET /sleep", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(length(r))
		text(w, common.Hello)
	})
	routes.HandleFunc("GET /cpu", func(w http.ResponseWriter, r *http.Request) {
		runtime.KeepAlive(common.Spin(length(r)))
		text(w, common.Hello)
	})
	routes.HandleFunc("GET /miss", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		text(w, common.Miss(query.Get("one_in"), query.Get("us")))
	})
	routes.HandleFunc("POST /length", func(w http.ResponseWriter, r *http.Request) {
		length, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text(w, strconv.FormatInt(length, 10))
	})
	log.Fatal(http.ListenAndServe(common.Address(), routes))
}
