import re,sys,os
root='/tmp/wt_web/crates/filoplume/src'
def strip(text):
    # code without comments, without #[cfg(test)] items
    out=[];lines=text.split('\n');i=0
    while i<len(lines):
        l=lines[i]
        if re.match(r'\s*#\[cfg\((all\()?test',l):
            # skip the next item
            i+=1
            while i<len(lines) and lines[i].strip().startswith('#['): i+=1
            if i<len(lines):
                if lines[i].rstrip().endswith(';'): i+=1; continue
                depth=0;
                while i<len(lines):
                    depth+=lines[i].count('{')-lines[i].count('}'); i+=1
                    if depth<=0: break
            continue
        l=re.sub(r'(?<!:)//.*','',l); out.append(l); i+=1
    return '\n'.join(out)
files={}
for d,_,fs in os.walk(root):
    for f in fs:
        p=os.path.relpath(os.path.join(d,f),root)
        if not f.endswith('.rs') or f in('tests.rs','lib.rs','prelude.rs') or f.endswith('_tests.rs') or p.startswith('faults'): continue
        files[p]=strip(open(os.path.join(root,p)).read())
def room(p): return p.split('/')[0].removesuffix('.rs')
rooms={room(p) for p in files}
# names that lib.rs hands on
lib=open(root+'/lib.rs').read(); handed={}
for m in re.finditer(r'pub use crate::(\w+)::(\{[^}]*\}|\w+)',lib):
    for n in re.findall(r'\w+',m[2]): handed[n]=m[1]
edges={}
for p,t in files.items():
    mod=p.removesuffix('.rs').split('/')
    if mod[-1]=='mod': mod=mod[:-1]
    for m in re.finditer(r'(?<![\w$])(\$?crate|(?:super::)*super)::(\{?)(\w+)',t):
        base=m[1]
        if base=='$crate': continue
        if base=='crate':
            names=[m[3]]
            if m[2]:
                names=re.findall(r'\w+',t[m.end(2):t.index('}',m.end(2))])
            for n in names:
                r=n if n in rooms else handed.get(n)
                if r and r!=room(p): edges.setdefault((room(p),r),set()).add(p)
        else:
            up=base.count('super'); path=mod[:len(mod)-up]
            if not path and m[3] in rooms and m[3]!=room(p): edges.setdefault((room(p),m[3]),set()).add(p)
g={r:{b for a,b in edges if a==r} for r in rooms}
# Tarjan by mutual reachability
def reach(a):
    seen=set();st=[a]
    while st:
        for b in g[st.pop()]:
            if b not in seen: seen.add(b);st.append(b)
    return seen
R={r:reach(r) for r in rooms}
circle=sorted(r for r in rooms if r in R[r])
for r in sorted(rooms,key=lambda r:(len(R[r]),r)): print(f'{r:16} -> {" ".join(sorted(g[r]))}')
print('in a circle:',' '.join(circle) or 'none')
if '-v' in sys.argv:
    for (a,b),ps in sorted(edges.items()):
        if a in R[b]: print(a,'->',b,sorted(ps))
